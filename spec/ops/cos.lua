--- cos: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-4, 4}, smooth = true, expect = {{{x = {0, 1.0471975511965976}}, {1, 0.5}}},
}
