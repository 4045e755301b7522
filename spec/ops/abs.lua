--- abs: sample data.
local samples = require "support.samples"

return samples.unary {avoid = {0}, expect = {{{x = {0, 1, -2}}, {0, 1, 2}}}}
