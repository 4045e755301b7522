--- reciprocal: sample data.
local samples = require "support.samples"

return samples.unary {range = {0.3, 3}, ints = {1, 9}, smooth = true, expect = {{{x = {4, -0.5}}, {0.25, -2}}}}
