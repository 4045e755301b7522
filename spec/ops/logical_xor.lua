--- logical_xor: sample data.
local samples = require "support.samples"

return samples.binary {
  a = {ints = {0, 1}}, b = {ints = {0, 1}},
  expect = {{{a = {0, 0, 2, 3}, b = {0, 1, 0, 4}}, {false, true, true, false}}},
}
