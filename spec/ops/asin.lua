--- asin: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-0.9, 0.9}, ints = {-1, 1}, smooth = true, expect = {{{x = {0, 0.5}}, {0, 0.5235987755982989}}},
}
