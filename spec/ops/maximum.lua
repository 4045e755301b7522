--- maximum: sample data; the ranges overlap, differences of less than a step are not met.
local samples = require "support.samples"

return samples.binary {expect = {{{a = {1, 5}, b = {4, 2}}, {4, 5}}}}
