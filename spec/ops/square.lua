--- square: sample data.
local samples = require "support.samples"

return samples.unary {smooth = true, expect = {{{x = {0, 1.5, -2}}, {0, 2.25, 4}}}}
