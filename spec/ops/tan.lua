--- tan: sample data. Extreme values are left out: the f32 kernel of cpu gives NaN from 2^31 on.
local samples = require "support.samples"

return samples.unary {
  range = {-1.2, 1.2}, ints = {-1, 1}, smooth = true, special = {{x = {37}}},
  expect = {{{x = {0, 0.7853981633974483}}, {0, 1}}},
}
