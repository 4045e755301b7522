--- expm1: sample data.
local samples = require "support.samples"

return samples.unary {range = {-2, 2}, smooth = true, expect = {{{x = {0, 1e-12}}, {0, 1e-12}}}}
