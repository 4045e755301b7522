--- remainder: sample data.
local samples = require "support.samples"

return samples.binary {a = {range = {0.1, 0.9}, avoid = {0.5}}, b = {range = {0.95, 1.5}, nonzero = true},
  expect = {{{a = {5, -5, 5, -5.5}, b = {3, 3, -3, 2}}, {2, 1, -1, 0.5}}}}
