--- acos: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-0.9, 0.9}, ints = {-1, 1}, smooth = true, expect = {{{x = {1, 0.5}}, {0, 1.0471975511965979}}},
}
