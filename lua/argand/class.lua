--- Classes for the library: single inheritance, and `#object` where a class defines __len.
--
-- A class is the metatable of its instances. `class(name, parent)` makes one; calling it makes an instance
-- and runs `init(self, ...)`. Plain LuaJIT ignores __len on tables, so an instance of a class with a __len is
-- handed out as a userdata (newproxy) that stands before its table: it indexes, calls and prints like it.

local M = {}

-- Fields that stay the class's own when a subclass copies its parent's metamethods.
local not_inherited = { __index = true, __class = true }

local function call_len(object)
  return getmetatable(object).__class.__len(object)
end

local function proxy_of(cls, object)
  local proxy = newproxy(true)
  local meta = getmetatable(proxy)
  for key, value in pairs(cls) do
    if type(key) == "string" and key:sub(1, 2) == "__" then meta[key] = value end
  end
  meta.__index, meta.__newindex, meta.__len = object, object, call_len
  return proxy
end

local function construct(cls, ...)
  local object = setmetatable(cls.allocate and cls.allocate() or {}, cls)
  if cls.__len then object = proxy_of(cls, object) end
  if cls.init then cls.init(object, ...) end
  return object
end

local class_meta = {}
class_meta.__index = function(cls, key)
  local parent = rawget(cls, "parent")
  return parent and parent[key]
end
class_meta.__call = construct
class_meta.__tostring = function(cls) return "class " .. cls.class_name end

--- Makes a class.
---@param name string shown by tostring
---@param parent? table
---@return table class
function M.new(name, parent)
  local cls = { class_name = name, parent = parent }
  for key, value in pairs(parent or {}) do
    if type(key) == "string" and key:sub(1, 2) == "__" and not not_inherited[key] then cls[key] = value end
  end
  -- A parent that computes its fields passes the function on; otherwise fields come from the class itself.
  local inherited = parent and rawget(parent, "__index")
  cls.__index = type(inherited) == "function" and inherited or cls
  cls.__class = cls
  if not cls.__tostring then cls.__tostring = function() return name end end
  return setmetatable(cls, class_meta)
end

--- Returns the class of an instance, nil for anything else.
---@param value any
---@return table|nil class
function M.of(value)
  local kind = type(value)
  if kind ~= "table" and kind ~= "userdata" then return nil end
  local meta = getmetatable(value)
  if type(meta) ~= "table" then return nil end
  local cls = rawget(meta, "__class")
  return type(cls) == "table" and cls or nil
end

--- Tells whether value is an instance of cls or of a class below it.
---@param value any
---@param cls table
---@return boolean
function M.is_a(value, cls)
  local found = M.of(value)
  while found do
    if found == cls then return true end
    found = rawget(found, "parent")
  end
  return false
end

return setmetatable(M, { __call = function(_, name, parent) return M.new(name, parent) end })
