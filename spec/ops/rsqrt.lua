--- rsqrt: sample data.
local samples = require "support.samples"

return samples.unary {range = {0.3, 5}, ints = {1, 9}, smooth = true, expect = {{{x = {4, 0.25}}, {0.5, 2}}}}
