--- exp: sample data.
local samples = require "support.samples"

return samples.unary {range = {-3, 3}, smooth = true, expect = {{{x = {0, 1}}, {1, 2.718281828459045}}}}
