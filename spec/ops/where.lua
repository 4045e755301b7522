--- where: sample data.
return {
  calls = {
    {condition = {4, 3}, a = {4, 3}, b = {4, 3}}, {condition = {3}, a = {4, 1}, b = {}},
    {condition = {2, 1, 4}, a = {3, 1}, b = {4}},
  },
  empty = {{condition = {0, 3}, a = {3}, b = {1, 3}}}, scalar = {{condition = {}, a = {}, b = {}}},
  smooth = true,
  large = {condition = {317, 317}, a = {317, 317}, b = {317}},
  expect = {{{condition = {true, false}, a = {1, 2}, b = {3, 4}}, {1, 4}}},
}
