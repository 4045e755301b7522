--- log: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {0.3, 4}, ints = {1, 9}, smooth = true, expect = {{{x = {1, 2.718281828459045}}, {0, 1}}},
}
