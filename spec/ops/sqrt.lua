--- sqrt: sample data.
local samples = require "support.samples"

return samples.unary {range = {0.2, 5}, ints = {0, 9}, smooth = true, expect = {{{x = {4, 2.25}}, {2, 1.5}}}}
