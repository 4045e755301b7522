--- sigmoid: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-5, 5}, smooth = true, expect = {{{x = {0, 1.0986122886681098, -1000}}, {0.5, 0.75, 0}}},
}
