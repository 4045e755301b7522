--- atanh: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-0.8, 0.8}, ints = {0, 0}, smooth = true, expect = {{{x = {0, 0.5}}, {0, 0.5493061443340549}}},
}
