--- softplus: sample data.
local samples = require "support.samples"

return samples.unary {range = {-4, 4}, smooth = true, expect = {{{x = {0, 1000}}, {0.6931471805599453, 1000}}}}
