--- exp2: sample data.
local samples = require "support.samples"

return samples.unary {range = {-3, 3}, smooth = true, expect = {{{x = {0, 3, -1}}, {1, 8, 0.5}}}}
