--- erf: sample data.
local samples = require "support.samples"

return samples.unary {range = {-2.5, 2.5}, smooth = true, expect = {{{x = {0, 1}}, {0, 0.8427007929497149}}}}
