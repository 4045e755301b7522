--- hardsigmoid: sample data.
local samples = require "support.samples"

return samples.unary {range = {-5, 5}, avoid = {-3, 3}, expect = {{{x = {-4, 0, 1.5, 4}}, {0, 0.5, 0.75, 1}}}}
