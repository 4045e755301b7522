--- bitwise_right_shift: sample data.
local samples = require "support.samples"

return samples.binary {b = {ints = {0, 6}}, expect = {{{a = {16, -8}, b = {3, 1}}, {2, -4}}}}
