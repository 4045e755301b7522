--- sin: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-4, 4}, smooth = true, expect = {{{x = {0, 0.5235987755982988}}, {0, 0.5}}},
}
