--- elu: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-3, 3}, avoid = {0}, attrs = {{alpha = 0.5}}, expect = {{{x = {2, -1}}, {2, -0.6321205588285577}}},
}
