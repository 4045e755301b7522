--- clamp: sample data.
local samples = require "support.samples"

return samples.unary {avoid = {-1, 1}, attrs = {{min = -1}, {max = 1}, {min = -1, max = 1}},
  expect = {{{x = {3, 0, -2}, min = -1, max = 2}, {2, 0, -1}}}}
