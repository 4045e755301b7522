--- bitwise_and: sample data.
local samples = require "support.samples"

return samples.binary {
  expect = {
    {{a = {12, -1}, b = {10, 7}}, {8, 7}},
    {{a = {true, true}, b = {true, false}}, {true, false}, dtype = "bool"},
  },
}
