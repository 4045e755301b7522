--- trunc: sample data.
local samples = require "support.samples"

return samples.unary {avoid = {-2, -1, 0, 1, 2}, expect = {{{x = {1.5, -1.5, 2}}, {1, -1, 2}}}}
