--- asinh: sample data.
local samples = require "support.samples"

return samples.unary {range = {-3, 3}, smooth = true, expect = {{{x = {0, 1}}, {0, 0.881373587019543}}}}
