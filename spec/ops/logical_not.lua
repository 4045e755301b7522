--- logical_not: sample data.
local samples = require "support.samples"

return samples.unary {expect = {{{x = {0, 1, -2}}, {true, false, false}}}}
