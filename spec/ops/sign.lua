--- sign: sample data.
local samples = require "support.samples"

return samples.unary {avoid = {0}, expect = {{{x = {0, 7, -2}}, {0, 1, -1}}}}
