--- round: sample data.
local samples = require "support.samples"

return samples.unary {avoid = {-1.5, -0.5, 0.5, 1.5}, expect = {{{x = {0.5, 1.5, -0.5, 2.4}}, {0, 2, 0, 2}}}}
