--- isinf: sample data.
local samples = require "support.samples"

return samples.unary {expect = {{{x = {0 / 0, 1, -1 / 0}}, {false, false, true}}}}
