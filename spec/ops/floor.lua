--- floor: sample data.
local samples = require "support.samples"

return samples.unary {avoid = {-2, -1, 0, 1, 2}, expect = {{{x = {0.5, -0.5, 2}}, {0, -1, 2}}}}
