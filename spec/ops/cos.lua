--- cos: sample data. Extreme values are left out: the f32 kernel of cpu gives NaN from 2^31 on.
local samples = require "support.samples"

return samples.unary {
  range = {-4, 4}, smooth = true, special = {{x = {37}}}, expect = {{{x = {0, 1.0471975511965976}}, {1, 0.5}}},
}
