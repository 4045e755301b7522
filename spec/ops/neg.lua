--- neg: sample data.
local samples = require "support.samples"

return samples.unary {smooth = true, expect = {{{x = {0, 1, -2}}, {0, -1, 2}}}}
