--- mul: sample data.
local samples = require "support.samples"

return samples.binary {smooth = true, expect = {{{a = {1, -2}, b = {10, 20}}, {10, -40}}}}
