--- cosh: sample data.
local samples = require "support.samples"

return samples.unary {range = {-2, 2}, smooth = true, expect = {{{x = {0, 1}}, {1, 1.5430806348152437}}}}
