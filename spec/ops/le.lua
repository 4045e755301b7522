--- le: sample data.
local samples = require "support.samples"

return samples.binary {
  a = {ints = {0, 2}}, b = {ints = {0, 2}}, expect = {{{a = {1, 1, 5}, b = {1, 3, 2}}, {true, true, false}}},
}
