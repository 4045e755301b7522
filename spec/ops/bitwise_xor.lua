--- bitwise_xor: sample data.
local samples = require "support.samples"

return samples.binary {
  expect = {
    {{a = {12, -1}, b = {10, 7}}, {6, -8}},
    {{a = {true, true}, b = {true, false}}, {false, true}, dtype = "bool"},
  },
}
