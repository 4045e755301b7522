--- sub: sample data.
local samples = require "support.samples"

return samples.binary {
  attrs = {{alpha = 2}}, smooth = true, expect = {{{a = {1, 2}, b = {10, 20}, alpha = 2}, {-19, -38}}},
}
