--- einsum: against the ops that it stands for, and against sums made element by element.
local ag = require "argand"
local cases = require "support.cases"

local function error_of(...)
  local ok, err = pcall(ag.einsum, ...)
  assert(not ok, "no error was raised")
  assert(type(err) == "table" and err.code, "not an error object: " .. tostring(err))
  return err
end

-- The definition: for every value of every letter, add the product of the elements to the result.
local function by_hand(equation, ...)
  local operands, left, right = {...}, equation:match "^(.*)%->(.*)$"
  local letters, sizes, inputs = {}, {}, {}
  for part in (left .. ","):gmatch "([^,]*)," do
    inputs[#inputs + 1] = part
    for i = 1, #part do
      local c, size = part:sub(i, i), operands[#inputs]:size(i)
      if not sizes[c] then letters[#letters + 1] = c end
      if not sizes[c] or size ~= 1 then sizes[c] = size end
    end
  end
  local shape = {}
  for i = 1, #right do shape[i] = sizes[right:sub(i, i)] end
  local out, at = ag.zeros(shape, {dtype = "f64"}), {}
  local function position(part, t)
    local list = {}
    for i = 1, #part do list[i] = math.min(at[part:sub(i, i)], t and t:size(i) or math.huge) end
    return unpack(list)
  end
  local function visit(k)
    if k > #letters then
      local product = 1
      for i, t in ipairs(operands) do product = product * t:get(position(inputs[i], t)) end
      local list = {position(right)}
      list[#list + 1] = out:get(unpack(list)) + product
      out:set(unpack(list))
      return
    end
    for v = 1, sizes[letters[k]] do
      at[letters[k]] = v
      visit(k + 1)
    end
  end
  visit(1)
  return out
end

describe("einsum", function()
  ag.manual_seed(3)
  local function random(...) return ag.randn(..., {dtype = "f64"}) end
  local a, b, c, m, v = random {3, 4}, random {4, 5}, random {5, 2}, random {3, 3}, random {4}
  local p, q = random {2, 3, 4}, random {2, 4, 5}

  it("sums products by its definition", function()
    local check = cases.begin()
    local list = {
      {"ij,jk->ik", a, b}, {"ij,jk->ki", a, b}, {"ij,jk->", a, b}, {"ij,kl->ijkl", a, m}, {"ij->ji", a}, {"ij->", a}, {"ij->j", a}, {"ii->", m}, {"ii->i", m},
      {"bij,bjk->bik", p, q}, {"bij,bjk->ik", p, q}, {"bij,bjk->bki", p, q}, {"i,i->", v, v}, {"i,j->ij", v, v}, {"ij,j->i", a, v}, {"ij,ij->ij", a, a},
      {"ij,ij->i", a, a}, {"ij,jk,kl->il", a, b, c}, {"ij,jk,kl->", a, b, c}, {"ij,j,jk->ik", a, v, b}, {"ii,ij->j", m, a}, {"bij->bji", p}, {"bij,j->bi", p, v},
      {"ij,bij->b", a, p}, {"i,i,i->i", v, v, v}, {"ij,ji->", m, m}, {"ij,jk->ik", random {3, 1}, b}, {"ij,ij->ij", random {1, 4}, a}, {"iij->j", random {2, 2, 3}},
      {"ijk,ijl,ijm->klm", p, p, p}, {",->", ag.tensor(2, {dtype = "f64"}), ag.tensor(3, {dtype = "f64"})}, {"ij,jk->ik", random {3, 0}, random {0, 2}},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local got, expected = ag.einsum(unpack(case)), by_hand(unpack(case))
        assert.same(expected:shape(), got:shape())
        assert.is_true(got:allclose(expected, {rtol = 1e-12, atol = 1e-12}))
      end)
    end
    check.done()
  end)

  it("finds the result's letters when they are not given", function()
    assert.is_true(ag.einsum("ij,jk", a, b):allclose(a:matmul(b)))
    assert.is_true(ag.einsum("ba", a):equal(a:t()))
    assert.is_true(ag.einsum("ii", m):allclose(m:diagonal():sum()))
    assert.is_true(ag.einsum(" ij , jk -> ik ", a, b):allclose(a:matmul(b)))
  end)

  it("is differentiable", function()
    local x, y = random({3, 4}), random({4, 5})
    x.requires_grad, y.requires_grad = true, true
    ag.einsum("ij,jk->ik", x, y):sum():backward()
    local gx, gy = x.grad, y.grad
    x.grad, y.grad = nil, nil
    x:matmul(y):sum():backward()
    assert.is_true(gx:allclose(x.grad) and gy:allclose(y.grad))
  end)

  it("refuses equations and tensors that do not fit", function()
    local check = cases.begin()
    local list = {
      {"argument", 5, a}, {"value", "ij,jk->ik", a}, {"value", "ij", a, b}, {"value", "i1->i", a}, {"value", "ij->k", a}, {"value", "ijk->i", a},
      {"value", "ij,jk->ik", a, a}, {"value", "ii->i", a}, {"value", "ij->ii", a}, {"value", "i->j->k", v}, {"argument", "i,i->", v, 5}, {"argument", "i,i->", nil, v},
      {"device", "i,i->", v, v:to "reference"}, {"value", "...i->i", v},
    }
    for i, case in ipairs(list) do
      check("case " .. i, function() assert.equal(case[1], error_of(unpack(case, 2, #case)).code) end)
    end
    check.done()
  end)
end)
