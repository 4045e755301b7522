--- bitwise_left_shift: sample data.
local samples = require "support.samples"

return samples.binary {b = {ints = {0, 6}}, expect = {{{a = {1, 3, 1}, b = {4, 1, 64}}, {16, 6, 0}}}}
