--- log10: sample data.
local samples = require "support.samples"

return samples.unary {range = {0.3, 4}, ints = {1, 9}, smooth = true, expect = {{{x = {1, 1000}}, {0, 3}}}}
