--- tanh: sample data.
local samples = require "support.samples"

return samples.unary {range = {-3, 3}, smooth = true, expect = {{{x = {0, 0.5493061443340549}}, {0, 0.5}}}}
