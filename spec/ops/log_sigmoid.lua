--- log_sigmoid: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-5, 5}, smooth = true, expect = {{{x = {0, -1000}}, {-0.6931471805599453, -1000}}},
}
