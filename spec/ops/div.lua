--- div: sample data.
local samples = require "support.samples"

return samples.binary {
  b = {range = {0.5, 3}, ints = {1, 5}}, smooth = true, expect = {{{a = {1, -2}, b = {4, 8}}, {0.25, -0.25}}},
}
