--- bitwise_or: sample data.
local samples = require "support.samples"

return samples.binary {
  expect = {
    {{a = {12, -8}, b = {10, 7}}, {14, -1}},
    {{a = {true, false}, b = {true, false}}, {true, false}, dtype = "bool"},
  },
}
