--- leaky_relu: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-3, 3}, avoid = {0}, attrs = {{negative_slope = 0.2}}, expect = {{{x = {2, -1}}, {2, -0.01}}},
}
