--- softsign: sample data.
local samples = require "support.samples"

return samples.unary {range = {-3, 3}, avoid = {0}, smooth = true, expect = {{{x = {0, 1, -3}}, {0, 0.5, -0.75}}}}
