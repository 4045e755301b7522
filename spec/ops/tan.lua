--- tan: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-1.2, 1.2}, ints = {-1, 1}, smooth = true,
  expect = {{{x = {0, 0.7853981633974483}}, {0, 1}}},
}
