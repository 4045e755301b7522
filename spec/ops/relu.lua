--- relu: sample data.
local samples = require "support.samples"

return samples.unary {avoid = {0}, expect = {{{x = {3, 0, -2}}, {3, 0, 0}}}}
